// Command agent is what runs in the test machine: its first process, from the
// initramfs, and the server of the host's commands. The host builds it from the
// tree at each boot (see the package above) and nobody starts it by hand.
//
// As process 1 it mounts the image, loads the drivers, makes the RDMA devices,
// starts itself once more as the server, and then does nothing but collect
// children that lost their parent: a process that waits for all cannot be the
// one that waits for its own.
package main
