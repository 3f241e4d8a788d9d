package nulldev

import (
	"io/fs"
	"os"
	"syscall"
)

// ownFolder reports whether no other user can write to the folder.
func ownFolder(info fs.FileInfo) bool {
	const othersWrite = 0o022
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.IsDir() && int(s.Uid) == os.Getuid() && info.Mode().Perm()&othersWrite == 0
}
