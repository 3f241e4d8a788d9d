// Package ends runs the two ends of an example, a server and a client, in one process or as two:
//
//	NAME                     both in this process
//	NAME serve [address]     the server, at ":7471" by default, until it is interrupted
//	NAME dial address        the client
//
// Example 01 does the same without this package.
package ends
