package rxevm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/rxevm/wire"
)

// The link's times.
const (
	// pingEvery is how often the agent is asked whether it lives.
	pingEvery = 5 * time.Second
	// silence is when an agent that says nothing is given up: an emulated
	// machine on a host with more to do than processors stalls for seconds.
	silence = time.Minute
	// haltTime is how long a machine may take to power off, killTime how long
	// QEMU may take to die of SIGKILL.
	haltTime, killTime = 15 * time.Second, 10 * time.Second
)

// Machine is a running test machine. Its methods may be called from any
// goroutine.
//
//	booting --(Hello)--> up --(Close)--> halting --(QEMU dead)--> closed
//	    \                 \--(QEMU dead, silence, nonsense)--> lost --(Close)--> closed
//	     \--(deadline, QEMU dead)--> closed, and Boot fails
type Machine struct {
	dir     string   // on the host: initrd, and the folder that the machine sees
	owner   *os.File // locked while dir is ours
	image   *os.File
	qemu    *qemu
	console console
	link    net.Conn // read by receive, written under out
	out     sync.Mutex
	monitor monitor
	plugged int    // the number of its plug; 0 without a cable
	address string // on the cable, with the prefix length
	hello   wire.Greeting

	// heard is when the last frame came, in nanoseconds of the process's
	// clock: written by receive, read by watch, publishes nothing else.
	heard atomic.Int64

	mu    sync.Mutex // guards what follows
	jobs  map[uint32]*Process
	last  uint32 // number of the last job
	fatal error  // why no command can be run any more

	ended sync.WaitGroup // receive and watch
	stop  chan struct{}  // closed by Close: watch ends
	close sync.Once
	err   error // of Close
}

// Boot starts a machine and returns when it takes commands. It blocks for the
// making of the image if the cache has none, and then for at most
// c.BootTimeout; when ctx ends, it gives up. The error says what is missing
// ([ErrNotHere]), or has the end of the kernel's log. The caller closes the
// machine; c.Cable is closed by who made it, after its machines.
func Boot(ctx context.Context, c Config) (*Machine, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	for _, sh := range c.Shares {
		if err := lookup(sh.Path); err != nil {
			return nil, err
		}
	}
	if err := Missing(); err != nil {
		return nil, err
	}
	say := func(format string, args ...any) { fmt.Fprintf(c.Log, "rxevm: "+format+"\n", args...) }
	img, err := Prepare(ctx, say)
	if err != nil {
		return nil, err
	}
	if c.accel == "" {
		c.accel = accelerator(ctx, img, say)
	}
	agent, err := buildAgent(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.BootTimeout)
	defer cancel()
	return boot(ctx, &c, img, agent)
}

// boot is Boot with everything at hand.
func boot(ctx context.Context, c *Config, img *Image, agent []byte) (_ *Machine, err error) {
	m := &Machine{jobs: map[uint32]*Process{}, stop: make(chan struct{})}
	if m.image, err = img.use(); err != nil {
		return nil, err
	}
	if m.dir, m.owner, err = ownFolder(); err != nil {
		return nil, errors.Join(err, m.image.Close())
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.discard())
		}
	}()
	if err := os.Mkdir(m.Dir(), 0o755); err != nil {
		return nil, err
	}
	fds, err := m.plug(c)
	defer func() {
		for _, f := range fds {
			_ = f.Close() // QEMU has its own by now
		}
	}()
	if err != nil {
		return nil, err
	}
	setup := wire.Setup{Shares: shares(c, m.Dir()), CableIP: m.address}
	initrd := filepath.Join(m.dir, "initrd")
	if err := initramfs(initrd, img, agent, setup); err != nil {
		return nil, err
	}
	if m.qemu, err = startQEMU(arguments(c, img, initrd, m.Dir(), accelArgument(c.accel), m.plugged), fds, &m.console); err != nil {
		return nil, fmt.Errorf("rxevm: starting QEMU: %w", err)
	}
	if err := m.greet(ctx); err != nil {
		return nil, err
	}
	return m, nil
}

func accelArgument(accel string) string {
	if accel == emulation {
		return emulation + ",thread=multi" // a thread for each processor
	}
	return accel
}

// plug makes the ends of the link, the monitor and the cable that QEMU gets, in
// the order of their numbers, and keeps ours.
func (m *Machine) plug(c *Config) (theirs []*os.File, err error) {
	if m.link, theirs, err = pair(theirs); err != nil {
		return theirs, err
	}
	if m.monitor.conn, theirs, err = pair(theirs); err != nil {
		return theirs, err
	}
	if c.Cable == nil {
		return theirs, nil
	}
	var conn net.Conn
	if conn, theirs, err = pair(theirs); err != nil {
		return theirs, err
	}
	if m.plugged, err = c.Cable.plug(conn); err != nil {
		return theirs, errors.Join(err, conn.Close())
	}
	m.address = fmt.Sprintf("10.78.0.%d/24", m.plugged)
	return theirs, nil
}

// pair makes a connected pair of stream sockets: one for us, the other appended
// to theirs.
func pair(theirs []*os.File) (net.Conn, []*os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, theirs, fmt.Errorf("rxevm: socketpair: %w", err)
	}
	ours := os.NewFile(uintptr(fds[0]), "ours")
	defer ours.Close() // FileConn has its own
	theirs = append(theirs, os.NewFile(uintptr(fds[1]), "QEMU's"))
	conn, err := net.FileConn(ours)
	return conn, theirs, err
}

// greet waits for the agent's first word.
func (m *Machine) greet(ctx context.Context) error {
	type greeting struct {
		wire.Greeting
		err error
	}
	in := bufio.NewReader(m.link)
	came := make(chan greeting, 1)
	go func() {
		f, err := wire.Read(in)
		g := greeting{err: err}
		if err == nil {
			if f.Kind != wire.Hello {
				g.err = fmt.Errorf("%w: kind %d before hello", wire.ErrFrame, f.Kind)
			} else {
				g.err = f.Decode(&g.Greeting)
			}
		}
		came <- g
	}()
	var why error
	select {
	case g := <-came:
		if g.err == nil {
			m.hello = g.Greeting
			m.heard.Store(time.Now().UnixNano())
			m.ended.Go(func() { m.receive(in) })
			m.ended.Go(m.watch)
			return nil
		}
		why = fmt.Errorf("the link: %w", g.err)
		// The log has more to say when QEMU is dead.
		select {
		case <-m.qemu.dead:
		case <-time.After(killTime):
		}
	case <-m.qemu.dead:
		why = errors.New("QEMU ended")
	case <-ctx.Done():
		why = ctx.Err()
	}
	m.kill()
	if s := m.console.why(); s != "" {
		why = errors.New(s)
	} else if s := m.qemu.said(); s != "" {
		why = fmt.Errorf("%w: %s", why, s)
	}
	return fmt.Errorf("rxevm: the machine did not boot: %w\n%s", why, tail(m.console.text(), logTail))
}

// kill kills QEMU and waits until it is dead, for a time: a process that hangs
// in the kernel (KVM on some machines) does not die.
func (m *Machine) kill() {
	select {
	case <-m.qemu.dead:
		return
	default:
	}
	_ = m.qemu.cmd.Process.Kill() // dead already is as well
	select {
	case <-m.qemu.dead:
	case <-time.After(killTime):
	}
}

// discard gives back what a machine holds on the host; QEMU is dead, or was
// never started.
func (m *Machine) discard() error {
	if m.link != nil {
		_ = m.link.Close() // Close has closed it already
	}
	if m.monitor.conn != nil {
		_ = m.monitor.conn.Close() // QEMU is dead: nobody misses a word
	}
	return errors.Join(os.RemoveAll(m.dir), m.owner.Close(), m.image.Close())
}

// Kernel is the release of the machine's kernel.
func (m *Machine) Kernel() string { return m.hello.Kernel }

// Env is a value of the environment that every command has; empty for none.
func (m *Machine) Env(name string) string { return m.hello.Env[name] }

// Log is the kernel's log so far, its last 1 MB.
func (m *Machine) Log() string { return m.console.text() }

// Close powers the machine off, kills what does not end, and gives everything
// back. Commands that still run fail with [ErrClosed]. It blocks for some
// seconds at most, and is idempotent: each call returns what the first did, a
// [*KernelError] if the kernel ever logged a fault, or [ErrLost].
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

// CableAddr is the machine's address on the cable; empty without one.
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
