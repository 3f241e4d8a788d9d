package pmem

import (
	"os"

	"golang.org/x/sys/unix"
)

func datasync(f *os.File) error { return os.NewSyscallError("fdatasync", unix.Fdatasync(int(f.Fd()))) }
