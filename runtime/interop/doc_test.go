// Package interop has no code, only tests: our endpoints against the programs of
// rdma-core, which nobody here wrote, on real devices.
//
//	ours                       theirs                                  what is ours made of
//	runtime.Conn, raw, by CM   rping, client and server                public API of runtime
//	runtime.Prepared, RC       ibv_rc_pingpong, client and server      the same
//	runtime.Prepared, UC       ibv_uc_pingpong, client and server      the same
//	SharedRecv and Prepared    ibv_srq_pingpong, client and server     the same, bootstrap for many at once
//	reactor.Queue, UD          ibv_ud_pingpong, client and server      reactor and bootstrap: a PacketConn has the
//	                                                                   connection manager's queue key
//
// VERBENA_TEST_DEVICES=A,B names the devices; each test runs on A alone, with two
// contexts, and from A to B. The programs are looked for in PATH (Debian:
// ibverbs-utils, rdmacm-utils).
package interop
