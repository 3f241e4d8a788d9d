// Command agent runs in the test machine: it is the first process, from the initramfs, and the
// server of the host's commands. The host builds it from the tree at each boot (see the package
// above); it is not started by hand.
//
// As process 1 it mounts the image, loads the drivers, makes the RDMA devices, starts itself once
// more as the server, and then only reaps orphaned processes: a process that waits for all
// children cannot also wait for its own.
package main
