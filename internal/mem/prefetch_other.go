//go:build !linux || portable

package mem

import "unsafe"

// osPrefetch does nothing: pages are brought in on first access.
func osPrefetch(unsafe.Pointer, uintptr, uintptr, bool) {}
