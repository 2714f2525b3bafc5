"""Images: pull policy, credentials, pulls and pull records."""
