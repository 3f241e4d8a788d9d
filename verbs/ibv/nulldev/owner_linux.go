package nulldev

import (
	"io/fs"
	"os"
	"syscall"
)

// ownFolder tells whether nobody else can put anything there.
func ownFolder(info fs.FileInfo) bool {
	const othersWrite = 0o022
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.IsDir() && int(s.Uid) == os.Getuid() && info.Mode().Perm()&othersWrite == 0
}
