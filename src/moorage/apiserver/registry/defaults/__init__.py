"""Defaults that several kinds share. A kind's own are in its module in `apiserver/registry/kinds/`.

They are filled in after decoding, before admission. Functions change canonical objects in place.
Source: API reference (field descriptions), `pkg/apis/*/v1/defaults` behaviour of Kubernetes 1.36.
"""
