// Package roce carries the packets of the software RNIC in UDP datagrams, in the format of RoCEv2:
// the transport headers and the payload of package wire, and the invariant CRC (ICRC) behind them.
//
//	UDP payload:  BTH, extension headers │ payload │ padding (0 to 3) │ ICRC (4)
//
// A [Link] is the uplink (package fabric) of one device. It has a socket at the device's address, and
// sends the packets of one run with one system call. It has no queue pairs and no timers: a datagram
// that the network loses is the engine's to repeat.
//
// Whatever arrives is hostile until the engine has parsed it. The link checks the length, the ICRC
// and that the headers are complete, and drops the rest, counted.
package roce
