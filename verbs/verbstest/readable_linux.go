//go:build linux && !portable

package verbstest

import "golang.org/x/sys/unix"

// fdReadable reports whether a descriptor is readable now; ok is false if that cannot be
// determined.
func fdReadable(fd int) (readable, ok bool) {
	if fd < 0 {
		return false, false
	}
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(p, 0)
		if err != unix.EINTR {
			return p[0].Revents&unix.POLLIN != 0, err == nil && p[0].Revents&unix.POLLNVAL == 0
		}
	}
}
