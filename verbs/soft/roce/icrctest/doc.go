// Package icrctest is a second implementation of RoCEv2's ICRC, for tests: bit by bit, from the text of the
// specification, and without anything in common with package roce.
package icrctest
