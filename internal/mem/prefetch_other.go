//go:build !linux || portable

package mem

import (
	"os"
	"unsafe"
)

// osPrefetch does nothing: pages are brought in on first access.
func osPrefetch(unsafe.Pointer, uintptr, uintptr, bool) {}

func osTouch(*os.File) {}

func osResident(unsafe.Pointer, uintptr, uintptr) bool { return false }
