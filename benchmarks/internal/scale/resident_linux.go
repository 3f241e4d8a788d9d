package scale

import (
	"bytes"
	"os"
	"strconv"
)

// resident returns the resident memory of this process in bytes.
func resident() (int64, bool) {
	text, err := os.ReadFile("/proc/self/statm") // proc(5): size resident ..., in pages
	f := bytes.Fields(text)
	if err != nil || len(f) < 2 {
		return 0, false
	}
	pages, err := strconv.ParseInt(string(f[1]), 10, 64)
	return pages * int64(os.Getpagesize()), err == nil
}
