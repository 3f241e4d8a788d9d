// Package process runs an example as two processes, a server and a client. It is for tests: the
// test binary starts itself, and runs the program in place of the tests.
package process
