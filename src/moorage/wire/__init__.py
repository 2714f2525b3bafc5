"""What is spoken: API client, CRI, streams, server sockets, webhook calls, metrics text."""
