//go:build !linux

package main

import (
	"fmt"
	"os"

	"github.com/verbena-rdma/verbena/internal/rxevm"
)

func main() {
	fmt.Println(rxevm.Missing()) // scripts read it from there
	os.Exit(3)                   // impossible
}
