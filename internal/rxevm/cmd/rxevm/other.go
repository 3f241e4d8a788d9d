//go:build !linux

package main

import (
	"fmt"
	"os"

	"github.com/verbena-rdma/verbena/internal/rxevm"
)

func main() {
	fmt.Fprintln(os.Stderr, "rxevm:", rxevm.Missing())
	os.Exit(1)
}
