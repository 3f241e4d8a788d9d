// Package netns runs a test in a network namespace of its own, which has only a loopback device, with the
// addresses that the test needs. For tests only; no privilege is necessary where the system lets users make
// user namespaces.
package netns
