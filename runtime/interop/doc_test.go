// Package interop has only tests: of this library's endpoints against the programs of rdma-core, an
// independent implementation, on real devices.
//
//	local end                  program                                 local end is made of
//	runtime.Conn, raw, by CM   rping, client and server                public API of runtime
//	the same                   rdma_client, rdma_server                the same
//	runtime.Prepared, RC       ibv_rc_pingpong, client and server      the same
//	the same                   perftest, client and server             the same
//	runtime.Prepared, UC       ibv_uc_pingpong, client and server      the same
//	SharedRecv and Prepared    ibv_srq_pingpong, client and server     the same, bootstrap for many at once
//	reactor.Queue, UD          ibv_ud_pingpong, client and server      reactor and bootstrap: a PacketConn has the
//	                                                                   connection manager's queue key
//
// VERBENA_TEST_DEVICES=A,B names the devices; each test runs on A alone, with two contexts, and from
// A to B. The programs must be in PATH (Debian: ibverbs-utils, rdmacm-utils, perftest).
package interop
