"""How frames travel between two sites: gRPC streams under TLS 1.3, with both identities pinned by the agreement. Import it before grpc.

grpcio's Python interface cannot set a least version of TLS. Its list of cipher suites holds only those of TLS 1.2, and those of TLS 1.3 are
always on: with one suite that needs an RSA certificate, which no peer has, no handshake of TLS 1.2 can succeed. grpc reads the list
when it is imported.
"""

import os
import sys

SETTING, SUITES = "GRPC_SSL_CIPHER_SUITES", "ECDHE-RSA-AES128-GCM-SHA256"
OLD_TLS_IS_OFF = "grpc" not in sys.modules or os.environ.get(SETTING) == SUITES
"""Whether grpc was imported with this list."""
os.environ[SETTING] = SUITES
