package runtime

import (
	"errors"
	"net/netip"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
)

// queuePairID owns the queue pair of a connection. It is a verbs.CMID (an identifier of the
// connection manager), or a *nocmID if the connection has no connection manager.
type queuePairID interface {
	verbs.Object // Close destroys the queue pair
	CreateQP(pd verbs.PD, init *verbs.QPInitAttr) error
	QP() verbs.QP
	Disconnect() error // moves the queue pair to ERR; a verbs.CMID also notifies the peer
	LocalAddr() netip.AddrPort
	PeerAddr() netip.AddrPort
}

// nocmID owns the queue pair of a connection without a connection manager. Runtime.Prepare makes a
// nocmID; after that only the holder of the reactor's turn uses the nocmID, or the connection's command
// that is under way (connCommand).
//
// There are no connection events for a nocmID. An asynchronous event of the device names only the
// queue pair, so the runtime searches all connections for this queue pair (shard.failAll,
// shard.tellConn).
type nocmID struct {
	path bootstrap.Path
	own  bootstrap.Dest // the local address; CreateQP sets own.QPN to the queue pair's number
	peer netip.Addr
	qp   verbs.QP
}

// Runtime.place returns a nocmID that has a local address but no queue pair yet. To choose the
// address, place reads the attributes and the GID table of the device, which takes some system calls.
// So place must not be called while a reactor's turn is held.
func (rt *Runtime) place(path bootstrap.Path) (*nocmID, error) {
	if err := rt.enter(); err != nil { // Runtime.Close waits for rt.leave() before it closes the device
		return nil, err
	}
	defer rt.leave()
	path, own, err := path.On(rt.dev)
	own.PSN = bootstrap.RandomPSN()
	return &nocmID{path: path, own: own}, err
}

// String returns the queue pair's name, for error messages. shard.ordered sorts identifiers by these
// names, so that every run of a simulation has the same order.
func (id *nocmID) String() string {
	if id.qp == nil {
		return "a queue pair that is not made"
	}
	return id.qp.String()
}

// CreateQP creates the queue pair and moves it to INIT.
func (id *nocmID) CreateQP(pd verbs.PD, init *verbs.QPInitAttr) error {
	qp, err := pd.CreateQP(init)
	if err != nil {
		return err
	}
	if err := id.path.Init(qp); err != nil {
		return errors.Join(err, qp.Close())
	}
	id.qp, id.own.QPN = qp, qp.Num()
	return nil
}

// QP returns the queue pair; nil before CreateQP and after Close.
func (id *nocmID) QP() verbs.QP { return id.qp }

// nocmID.join connects the queue pair to the peer's queue pair: it moves the queue pair to RTR, and
// then to RTS. The argument own is the local GID from which the path sends.
func (id *nocmID) join(path bootstrap.Path, own verbs.GID, peer bootstrap.Dest) error {
	if err := path.Connect(id.qp, id.own.PSN, peer); err != nil {
		return err
	}
	id.path, id.own.GID = path, own
	id.peer = peer.GID.Addr()
	return nil
}

// Disconnect moves the queue pair to ERR, so that the device flushes all requests. The peer is not
// notified.
func (id *nocmID) Disconnect() error {
	return id.qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState)
}

// Close destroys the queue pair.
func (id *nocmID) Close() error {
	if id.qp == nil {
		return nil
	}
	if err := id.qp.Close(); err != nil {
		return err
	}
	id.qp = nil
	return nil
}

// LocalAddr returns the IP address of the local end. The port number is 0: queue pairs have none.
func (id *nocmID) LocalAddr() netip.AddrPort { return netip.AddrPortFrom(id.own.GID.Addr(), 0) }

// PeerAddr returns the IP address of the peer, with port number 0.
func (id *nocmID) PeerAddr() netip.AddrPort { return netip.AddrPortFrom(id.peer, 0) }
