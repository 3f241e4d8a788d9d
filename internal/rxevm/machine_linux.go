package rxevm

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/internal/rxevm/wire"
)

// The link's times.
const (
	// pingEvery is the interval of pings.
	pingEvery = 5 * time.Second
	// silence is how long an agent may be silent: an emulated machine on an overloaded host
	// stalls for seconds.
	silence = time.Minute
	// haltTime is how long a machine may take to power off, killTime how long QEMU may take to
	// end after SIGKILL.
	haltTime, killTime = 15 * time.Second, 10 * time.Second
)

// Machine is a running test machine. Its methods may be called from any goroutine.
//
//	booting --(Hello)--> up --(Close)--> halting --(QEMU dead)--> closed
//	    \                 \--(QEMU dead, silence, invalid frame)--> lost --(Close)--> closed
//	     \--(deadline, QEMU dead)--> closed; Boot fails, or makes another (bootAgain)
type Machine struct {
	dir     string   // on the host: initrd, and the folder shared with the machine
	owner   *os.File // locked while this process uses dir
	image   *os.File
	qemu    *qemu
	console console
	link    net.Conn // read by receive, written under out
	out     sync.Mutex
	monitor monitor
	plugged int    // the number of its plug; 0 without a cable
	address string // on the cable, with the prefix length
	hello   wire.Greeting

	// heard is the time of the last frame: written by receive, read by watch, publishes nothing
	// else.
	heard uatomic.Time

	mu    sync.Mutex // guards the following fields
	jobs  map[uint32]*Process
	last  uint32 // number of the last job
	fatal error  // why commands can no longer be run

	ended sync.WaitGroup // receive and watch
	stop  chan struct{}  // closed by Close: watch ends
	close sync.Once
	err   error // of Close
}

// kill kills QEMU and waits for its end, for a time: a process that hangs in the kernel (KVM on
// some machines) does not end.
func (m *Machine) kill() {
	select {
	case <-m.qemu.dead:
		return
	default:
	}
	_ = m.qemu.cmd.Process.Kill() // fails only if it is dead already
	select {
	case <-m.qemu.dead:
	case <-time.After(killTime):
	}
}

// Kill ends QEMU without a word to the machine, as a loss of power does: nothing that runs in it does
// anything more. Commands fail with [ErrLost], and so does the later Close. It blocks until QEMU is dead,
// for some seconds at most.
func (m *Machine) Kill() { m.kill() }

// discard releases a machine's resources on the host; QEMU is dead, or was never started.
func (m *Machine) discard() error {
	if m.link != nil {
		_ = m.link.Close() // Close has closed it already
	}
	if m.monitor.conn != nil {
		_ = m.monitor.conn.Close() // QEMU is dead, so no data is lost
	}
	return errors.Join(os.RemoveAll(m.dir), m.owner.Close(), m.image.Close())
}

// Kernel returns the release of the machine's kernel.
func (m *Machine) Kernel() string { return m.hello.Kernel }

// Env returns a variable of the environment of all commands; empty for none.
func (m *Machine) Env(name string) string { return m.hello.Env[name] }

// Log returns the kernel's log so far, its last 1 MB.
func (m *Machine) Log() string { return m.console.text() }

// Close powers the machine off, kills the remaining processes, and releases everything. Commands
// that still run fail with [ErrClosed]. It blocks for some seconds at most, and is idempotent:
// each call returns the result of the first, a [*KernelError] if the kernel ever logged a fault,
// or [ErrLost].
func (m *Machine) Close() error {
	m.close.Do(func() {
		m.mu.Lock()
		lost := m.fatal
		m.mu.Unlock()
		m.fail(ErrClosed)
		close(m.stop)
		if lost == nil && m.send(wire.Frame{Kind: wire.Halt}) == nil {
			select {
			case <-m.qemu.dead:
			case <-time.After(haltTime):
				lost = fmt.Errorf("%w: it did not power off within %v", ErrLost, haltTime)
			}
		}
		m.kill()
		_ = m.link.Close() // receive ends
		m.ended.Wait()
		m.err = errors.Join(lost, m.console.since(0), m.discard())
	})
	return m.err
}

// CableAddr returns the machine's address on the cable; empty without one.
func (m *Machine) CableAddr() string {
	ip, _, err := net.ParseCIDR(m.address)
	if err != nil {
		return ""
	}
	return ip.String()
}

// CableDevice is the RDMA device on the cable, and CableNIC its interface.
const (
	CableDevice = wire.CableDevice
	CableNIC    = wire.CableNIC
)
