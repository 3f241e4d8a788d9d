// Package interop has only tests: package rdmacm against the example programs of librdmacm, an independent
// implementation, on real devices, and against their translations into Go.
//
//	translation               program of rdma-core (librdmacm/examples)
//	rdmaClient, rdmaServer    rdma_client.c, rdma_server.c: endpoints, one message each way
//	udaddy                    udaddy.c: datagrams there and back, with an event channel
//	mckey                     mckey.c: datagrams to a multicast group
//
// A translation makes the calls of the C program in its order, and has its options. It prints nothing.
//
// VERBENA_TEST_DEVICES=A,B names the devices. The programs must be in PATH (Debian: rdmacm-utils).
package interop
