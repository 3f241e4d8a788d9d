package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/rxevm/wire"
)

// environment is the variable through which process 1 passes the commands' environment to the
// server, as JSON.
const environment = "RXEVM_ENV"

// deserted is how long the host may be silent (it pings every few seconds) before the machine
// assumes that it is dead and powers off, so that a machine cannot outlive its run.
const deserted = 2 * time.Minute

// server is the machine's end of the link.
type server struct {
	out sync.Mutex // guards writes to port
	// port is read by the one loop of serve, written under out.
	port *os.File
	kmsg *os.File
	env  map[string]string
	mu   sync.Mutex // guards jobs
	jobs map[uint32]*job
}

// serve answers the host until it sends Halt, disconnects, or sends an invalid frame.
func serve() error {
	s := &server{jobs: map[uint32]*job{}}
	if err := json.Unmarshal([]byte(os.Getenv(environment)), &s.env); err != nil {
		return fmt.Errorf("%s: %w", environment, err)
	}
	name, err := port()
	if err != nil {
		return err
	}
	if s.port, err = os.OpenFile(name, os.O_RDWR, 0); err != nil {
		return err
	}
	if s.kmsg, err = os.OpenFile("/dev/kmsg", os.O_WRONLY, 0); err != nil {
		return err
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return err
	}
	hello := wire.Greeting{Kernel: unix.ByteSliceToString(uts.Release[:]), Env: s.env}
	if err := s.sendJSON(wire.Hello, 0, hello); err != nil {
		return err
	}
	alone := time.AfterFunc(deserted, powerOff)
	in := bufio.NewReader(s.port)
	for {
		f, err := wire.Read(in)
		if err != nil {
			return fmt.Errorf("the host's end: %w", err)
		}
		alone.Reset(deserted)
		if f.Kind == wire.Halt {
			return nil
		}
		if err := s.take(f); err != nil {
			return err
		}
	}
}

// take handles one frame. It does not wait for a command.
func (s *server) take(f wire.Frame) error {
	switch f.Kind {
	case wire.Ping:
		return s.send(wire.Frame{Kind: wire.Pong})
	case wire.Start:
		var spec wire.Spec
		if err := f.Decode(&spec); err != nil {
			return err
		}
		j := &job{server: s, id: f.Job, spec: spec}
		s.mu.Lock()
		s.jobs[f.Job] = j
		s.mu.Unlock()
		go j.run()
	case wire.Signal:
		s.mu.Lock()
		j := s.jobs[f.Job]
		s.mu.Unlock()
		// The job may have ended before its signal arrived.
		if j != nil && len(f.Payload) == 1 {
			j.signal(unix.Signal(f.Payload[0]))
		}
	case wire.Blocked:
		return os.WriteFile("/proc/sysrq-trigger", []byte("w"), 0)
	default:
		return fmt.Errorf("the host sent a frame of kind %d", f.Kind)
	}
	return nil
}

func (s *server) send(f wire.Frame) error {
	s.out.Lock()
	defer s.out.Unlock()
	return wire.Write(s.port, f)
}

func (s *server) sendJSON(kind wire.Kind, job uint32, v any) error {
	s.out.Lock()
	defer s.out.Unlock()
	return wire.WriteJSON(s.port, kind, job, v)
}

// end announces that a job is over: in the kernel's log first, so that the kernel's messages
// about the job precede the mark.
func (s *server) end(id uint32, e wire.Ended) {
	// <4> is the level of a warning: it reaches the console.
	_, err := fmt.Fprintf(s.kmsg, "<4>%s%d\n", wire.EndMark, id)
	if err != nil && e.Error == "" {
		e.Error = fmt.Sprintf("writing to the kernel's log: %v", err)
	}
	s.mu.Lock()
	delete(s.jobs, id)
	s.mu.Unlock()
	// Without a link the loop of serve ends the machine.
	_ = s.sendJSON(wire.Exit, id, e)
}

// port finds the device of the link.
func port() (string, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return "", err
	}
	for _, n := range names {
		text, err := os.ReadFile(n)
		if err != nil {
			return "", err
		}
		if strings.TrimSpace(string(text)) == wire.Port {
			return filepath.Join("/dev", filepath.Base(filepath.Dir(n))), nil
		}
	}
	return "", errors.New("no virtio-serial port named " + wire.Port)
}
