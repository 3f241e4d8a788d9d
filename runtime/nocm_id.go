package runtime

import (
	"errors"
	"net/netip"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
)

// queuePairID is what gives a connection its queue pair and takes it back: an
// identifier of the connection manager (verbs.CMID), or a nocmID.
type queuePairID interface {
	verbs.Object // Close destroys the queue pair
	CreateQP(pd verbs.PD, init *verbs.QPInitAttr) error
	QP() verbs.QP
	Disconnect() error // moves the queue pair to ERR, and tells the peer if it can
	LocalAddr() netip.AddrPort
	PeerAddr() netip.AddrPort
}

// nocmID is a queue pair that no connection manager knows. No events come for
// it; what the device says of the queue pair finds the connection by that. Holder
// only.
type nocmID struct {
	path bootstrap.Path
	own  bootstrap.Dest // QPN since CreateQP
	peer netip.Addr
	qp   verbs.QP
}

// place chooses where a queue pair will be. It asks the device, by system calls, of
// which a long table of addresses takes hundreds: not on the turn.
func (rt *Runtime) place(path bootstrap.Path) (*nocmID, error) {
	if err := rt.enter(); err != nil { // or Close would take the device away
		return nil, err
	}
	defer rt.leave()
	path, own, err := path.On(rt.dev)
	own.PSN = bootstrap.RandomPSN()
	return &nocmID{path: path, own: own}, err
}

// String names it as its queue pair is named: for messages, and for the order of
// a simulation.
func (id *nocmID) String() string {
	if id.qp == nil {
		return "a queue pair that is not made"
	}
	return id.qp.String()
}

// CreateQP makes the queue pair and moves it to INIT.
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

// QP is the queue pair; nil before CreateQP and after Close.
func (id *nocmID) QP() verbs.QP { return id.qp }

// join moves the queue pair to RTS, joined to the peer's.
func (id *nocmID) join(peer bootstrap.Dest) error {
	if err := id.path.Connect(id.qp, id.own.PSN, peer); err != nil {
		return err
	}
	id.peer = peer.GID.Addr()
	return nil
}

// Disconnect has the device give everything back. Nobody is told.
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

// LocalAddr and PeerAddr are the addresses of the ports; there is nothing like a
// port number.
func (id *nocmID) LocalAddr() netip.AddrPort { return netip.AddrPortFrom(id.own.GID.Addr(), 0) }

// PeerAddr is the peer's; see LocalAddr.
func (id *nocmID) PeerAddr() netip.AddrPort { return netip.AddrPortFrom(id.peer, 0) }
