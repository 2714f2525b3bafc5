"""What is done with runtimes: probed, installed, measured, checked, rolled out."""
