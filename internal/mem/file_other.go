//go:build !linux || portable

package mem

import (
	"errors"
	"fmt"
	"unsafe"
)

const fileSupported = false

func osMapFile(path string, size int) (mapping, error) {
	return mapping{}, fmt.Errorf("mem: map of %d bytes of %s: %w", size, path, errors.ErrUnsupported)
}

func osSync(unsafe.Pointer, uintptr, uintptr) error { return errors.ErrUnsupported }
