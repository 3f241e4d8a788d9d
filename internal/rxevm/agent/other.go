//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "rxevm agent: it runs in the test machine, which is Linux")
	os.Exit(1)
}
