//go:build !linux

package main

import (
	"fmt"
	"os"

	"github.com/verbena-rdma/verbena/internal/rxevm"
)

func main() {
	fmt.Println(rxevm.Missing()) // where a script takes it from
	os.Exit(3)                   // impossible
}
