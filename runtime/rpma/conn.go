package rpma

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// Conn is a connection. All methods may be called from any goroutine; operations that one goroutine starts
// are executed in their order. The caller closes the connection.
//
// Implements: struct rpma_conn.
type Conn struct {
	peer    *Peer
	r       *reactor.Reactor
	pending *runtime.Pending
	srq     *SRQ
	qpn     uint32
	shared  bool
	passive bool
	cq, rcq *CQ // rcq is nil if receives complete to cq, or to the SRQ's
	bells   []*bell
	sends   places
	recvs   places

	events    chan Event // what NextEvent returns; the goroutine of begin sends
	eventBell *sys.Event // raised while events has one

	// conn is the established connection, and private the peer's private data. The goroutine of begin
	// writes conn, private (at the dialing end) and err before it closes ready.
	ready   chan struct{}
	conn    *runtime.Conn // nil if the attempt has failed
	private []byte
	err     error // why the attempt has failed
	// up is conn from the end of the handshake until Close, else nil: operations need no select meanwhile. The goroutine
	// of begin writes it before it closes ready, and Close clears it. Operations read it; it publishes conn.
	up atomic.Pointer[runtime.Conn]

	direct atomic.Bool // what ApplyRemotePeerConfig has set; Flush reads it. It publishes nothing

	close   sync.Mutex    // held by Close
	closing chan struct{} // closed by the first Close
	working sync.WaitGroup
	cancel  context.CancelFunc // ends the attempt; nil before begin. Guarded by close
	gone    bool               // Close has ended. Guarded by close
}

// begin starts the handshake, on a goroutine that ends when the connection has ended.
func (c *Conn) begin(private []byte) {
	c.close.Lock()
	defer c.close.Unlock()
	var ctx context.Context
	ctx, c.cancel = context.WithCancel(background)
	c.working.Go(func() { c.run(ctx, private) })
}

func (c *Conn) run(ctx context.Context, private []byte) {
	conn, err := c.pending.ConnectData(ctx, private)
	if err != nil {
		c.err = err
		close(c.ready)
		c.tell(eventOf(err), err)
		return
	}
	c.conn = conn
	if !c.passive {
		c.private = conn.PrivateData()
	}
	c.up.Store(conn)
	close(c.ready)
	c.tell(Established, nil)
	<-conn.Done()
	if err = conn.Err(); errors.Is(err, runtime.ErrConnClosed) { // Disconnect, or Close
		<-conn.Gone() // all operations have completed
	}
	c.tell(eventOf(err), err)
}

// live returns the connection for an operation. While the handshake goes on, it waits: the peer's first
// message may be here before.
func (c *Conn) live(op string) (*runtime.Conn, error) {
	if conn := c.up.Load(); conn != nil {
		return conn, nil
	}
	select {
	case <-c.ready:
	case <-c.closing:
	}
	if c.isClosed() {
		return nil, fail(op, ErrInvalid, verbs.ErrClosed)
	}
	if c.conn == nil {
		return nil, fail(op, ErrProvider, fmt.Errorf("%w: %w", syscall.ENOTCONN, c.err))
	}
	return c.conn, nil
}

// isClosed reports whether Close was called.
func (c *Conn) isClosed() bool {
	select {
	case <-c.closing:
		return true
	default:
		return false
	}
}

// PrivateData returns the private data of the peer: of its request, or, at the end that requested the
// connection, of its answer, from the event Established on. It is nil if there is none, and may be padded with
// zeros. It is not authenticated: on an unprotected network, others may have changed it.
//
// Implements: rpma_conn_get_private_data.
func (c *Conn) PrivateData() []byte {
	if c.passive {
		return c.private
	}
	select {
	case <-c.ready:
		return c.private
	default:
		return nil
	}
}

// RemoteAddr returns the address of the peer.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.pending.RemoteAddr() }

// QPNum returns the number of the queue pair, which completions have. It stays the same after
// Disconnect.
//
// Implements: rpma_conn_get_qp_num.
func (c *Conn) QPNum() uint32 { return c.qpn }

// CQ returns the main CQ. It gets the completions of all operations but receives, and those of receives if
// there is neither a receive CQ nor that of an SRQ.
//
// Implements: rpma_conn_get_cq.
func (c *Conn) CQ() *CQ { return c.cq }

// RCQ returns the receive CQ of the connection, or nil if it has none.
//
// Implements: rpma_conn_get_rcq.
func (c *Conn) RCQ() *CQ { return c.rcq }

// recvCQ returns the CQ for receives of the connection.
func (c *Conn) recvCQ() *CQ {
	if c.rcq != nil {
		return c.rcq
	}
	return c.cq
}

// Wait waits until a CQ of the connection has a completion, and returns the CQ. GetWC may still find none, if
// another goroutine takes it. If both have one, Wait returns the main CQ.
//
// Errors: ErrInvalid for a nil context; ErrNotSharedChannel if ConnConfig.SharedChannel is not set;
// ErrNoCompletion if the connection is closed meanwhile; the error of the context.
//
// Implements: rpma_conn_wait.
func (c *Conn) Wait(ctx context.Context) (cq *CQ, isRCQ bool, err error) {
	const op = "rpma_conn_wait"
	if !c.shared {
		return nil, false, fail(op, ErrNotSharedChannel, nil)
	}
	if cq, err = c.cq.bell.wait(ctx); err != nil {
		return nil, false, waited(op, err)
	}
	return cq, cq == c.rcq, nil
}

// CompletionFD returns the descriptor of the shared completion channel: see CQ.FD.
//
// Errors: ErrNotSharedChannel if ConnConfig.SharedChannel is not set; ErrNotSupported.
//
// Implements: rpma_conn_get_compl_fd.
func (c *Conn) CompletionFD() (int, error) {
	const op = "rpma_conn_get_compl_fd"
	if !c.shared {
		return -1, fail(op, ErrNotSharedChannel, nil)
	}
	return descriptorOf(op, c.cq.bell.event)
}

// ApplyRemotePeerConfig tells what platform the peer is. Before that, it is taken for one without direct write to
// persistent memory: see Flush.
//
// Implements: rpma_conn_apply_remote_peer_cfg.
func (c *Conn) ApplyRemotePeerConfig(cfg PeerConfig) { c.direct.Store(cfg.DirectWriteToPMem) }

// Err returns why the connection has ended, or was not established; nil before.
func (c *Conn) Err() error {
	select {
	case <-c.ready:
	default:
		return nil
	}
	if c.conn == nil {
		return c.err
	}
	return c.conn.Err()
}

// Disconnect ends the connection, whether or not the peer has disconnected before. Outstanding operations
// complete, with a failure if the device has not executed them; then the event Closed follows, unless there
// was a last event already. The peer gets Closed, too. Disconnect is idempotent and does not block. Close is
// still needed.
//
// Errors: ErrProvider with ENOTCONN if the connection was not established; ErrInvalid after Close.
//
// Implements: rpma_conn_disconnect.
func (c *Conn) Disconnect() error {
	const op = "rpma_conn_disconnect"
	select {
	case <-c.ready:
	default:
		if !c.isClosed() {
			return fail(op, ErrProvider, syscall.ENOTCONN)
		}
	}
	conn, err := c.live(op)
	if err != nil {
		return err
	}
	conn.Abort()
	return nil
}

// Close disconnects, and frees all resources. Completions that were not taken are lost with the CQs.
// Close is idempotent. It waits for the device, until ctx ends and then at most 6.5 s.
//
// Errors: ErrInvalid for a nil context. ErrProvider: if it matches runtime.ErrReactorBusy, Close may be called
// again; otherwise the resources are freed as far as the device permits.
//
// Implements: rpma_conn_delete.
func (c *Conn) Close(ctx context.Context) error {
	const op = "rpma_conn_delete"
	if ctx == nil {
		return classified(op, runtime.ErrNilContext)
	}
	c.close.Lock()
	defer c.close.Unlock()
	if c.gone {
		return nil
	}
	if !c.isClosed() {
		close(c.closing)
	}
	if c.cancel != nil {
		c.cancel()
		<-c.ready
	}
	c.up.Store(nil)
	var err error
	if c.conn != nil {
		c.conn.Abort()
		err = c.conn.Close(ctx)
	} else {
		err = c.pending.Close(ctx)
	}
	if errors.Is(err, runtime.ErrReactorBusy) {
		return fail(op, ErrProvider, err)
	}
	c.working.Wait()
	c.srq.leave(c)
	c.cq.end()
	c.rcq.end()
	for _, b := range c.bells {
		b.close()
	}
	c.gone = true
	c.peer.leave()
	if err = errors.Join(err, c.eventBell.Close()); err != nil {
		return fail(op, ErrProvider, err)
	}
	return nil
}
