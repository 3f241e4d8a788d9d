package rxevm

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ownerName is the file in a machine's folder whose lock its process holds while it uses the
// folder. The file gets its name only once it is locked: if the lock of a folder can be taken,
// its process was killed.
const ownerName = "owner"

// folderPattern is the name of a machine's folder on the host, in the system's temporary folder.
const folderPattern = "rxevm-*"

// ownFolder makes a folder for a machine, and removes those of killed processes. The folder
// belongs to the process until it closes the lock, after it has removed the folder.
func ownFolder() (dir string, lock *os.File, err error) {
	sweep(os.TempDir())
	if dir, err = os.MkdirTemp("", folderPattern); err != nil {
		return "", nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	name := filepath.Join(dir, ownerName)
	if lock, err = os.Create(name + ".new"); err != nil {
		return "", nil, err
	}
	if err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		err = os.Rename(lock.Name(), name)
	}
	if err != nil {
		return "", nil, errors.Join(err, lock.Close())
	}
	return dir, lock, nil
}

// sweep removes the folders in temp whose owners are dead. It leaves those that it cannot remove,
// which belong to other users.
func sweep(temp string) {
	owners, err := filepath.Glob(filepath.Join(temp, folderPattern, ownerName))
	if err != nil {
		return
	}
	for _, name := range owners {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.RemoveAll(filepath.Dir(name))
		}
		_ = f.Close() // nothing was written
	}
}
