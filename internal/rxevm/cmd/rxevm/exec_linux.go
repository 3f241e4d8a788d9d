package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/rxevm"
	"github.com/verbena-rdma/verbena/internal/rxevm/wire"
)

// execute runs a program of this host in the machine named by VERBENA_RXEVM, or in a new one.
func execute(args []string) (code int, err error) {
	if len(args) == 0 {
		return 2, errors.New("exec: no program")
	}
	socket := os.Getenv(rxevm.SocketVar)
	if socket != "" {
		return inside(socket, args)
	}
	shares, err := own(nil)
	if err != nil {
		return 1, err
	}
	m, err := rxevm.Boot(context.Background(), rxevm.Config{Shares: shares, Log: os.Stderr})
	if err != nil {
		return 1, err
	}
	socket, stop, err := m.Serve()
	if err != nil {
		return 1, errors.Join(err, m.Close())
	}
	code, err = inside(socket, args)
	stop()
	return code, errors.Join(err, closed(m))
}

// inside copies the program into the machine, runs it, and brings its files back.
func inside(socket string, args []string) (code int, err error) {
	here, err := os.Getwd()
	if err != nil {
		return 1, err
	}
	job, err := os.MkdirTemp(rxevm.ShareOf(socket), "job-")
	if err != nil {
		return 1, fmt.Errorf("no machine at %s=%s: %w", rxevm.SocketVar, socket, err)
	}
	defer os.RemoveAll(job)
	program := filepath.Base(args[0])
	if err := copyFile(args[0], filepath.Join(job, program)); err != nil {
		return 1, err
	}
	r := &rewriter{here: here, host: job, guest: wire.ShareDir + "/" + filepath.Base(job)}
	argv := append([]string{r.guest + "/" + program}, r.arguments(args[1:])...)
	env := r.environment(passed(os.Environ()))
	if r.err != nil {
		return 1, r.err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	p, err := rxevm.StartRemote(socket, rxevm.Cmd{Argv: argv, Env: env, Dir: here, Carry: true})
	if err != nil {
		return 1, err
	}
	go func() {
		for s := range signals {
			_ = p.Signal(s.(syscall.Signal)) // an ended command needs none
		}
	}()
	code, err = p.Wait(os.Stdout, os.Stderr)
	signal.Stop(signals)
	close(signals)
	return code, errors.Join(err, r.bringBack())
}
