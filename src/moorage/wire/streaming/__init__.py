"""Interactive streams: HTTP upgrades, SPDY and websocket channels, and pipes between them.

kubectl ──websocket v5──▶ bridge ──SPDY/3.1──▶ node agent ──bytes──▶ container engine
kubectl ──SPDY, v4, port-forward tunnel──────▶ node agent ──bytes──▶ container engine
crictl, kubelet ──SPDY, websocket──▶ Moorage's engine: a byte stream for each stream or channel
"""
