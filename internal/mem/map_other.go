//go:build !unix && !windows

package mem

import (
	"errors"
	"fmt"
	"unsafe"
)

func osMap(size int, _ Options) (mapping, error) {
	return mapping{}, fmt.Errorf("mem: map of %d bytes: %w", size, errors.ErrUnsupported)
}

func osUnmap(unsafe.Pointer, int) error { return errors.ErrUnsupported }
