//go:build !linux || portable

package mem

import "unsafe"

// osPrefetch does nothing: pages come when they are touched.
func osPrefetch(unsafe.Pointer, uintptr, uintptr, bool) {}
