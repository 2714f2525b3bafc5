"""What is left over: dead containers and sandboxes, orphaned pods, images, overfull volumes."""
