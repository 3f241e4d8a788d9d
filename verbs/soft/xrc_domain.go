package soft

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

// xrcDomain is an XRC domain of a device. It lives while handles on it are open. Under the port's
// token.
type xrcDomain struct {
	inode *sys.Inode // nil: private
	opens int
}

// xrcd is a context's handle on a domain.
type xrcd struct {
	ctx    *deviceContext
	dom    *xrcDomain
	number uint32

	// Under the port's token.
	closed    bool
	qps, srqs int // living objects made through this handle
}

var _ verbs.XRCD = (*xrcd)(nil)

// OpenXRCD opens an XRC domain. With an fd it opens the domain of the file's inode, which the
// contexts of the device in this process share. os.O_CREATE makes a missing one (otherwise
// EAGAIN); os.O_EXCL fails if there is one (EINVAL). fd -1 makes a private domain. fd stays the
// caller's, who may close it.
//
// Implements: ibv_open_xrcd, with the errnos of ib_uverbs_open_xrcd (kernel, uverbs_cmd.c).
func (c *deviceContext) OpenXRCD(fd int, oflags int) (verbs.XRCD, error) {
	const op = "ibv_open_xrcd"
	if oflags&^(os.O_CREATE|os.O_EXCL) != 0 {
		return nil, opError(op, c.String(), syscall.EINVAL, "%w: flags 0x%x", verbs.ErrInvalid, oflags)
	}
	x := &xrcd{ctx: c}
	var inode *sys.Inode
	if fd != -1 {
		var err error
		inode, err = sys.HoldInode(fd)
		if errors.Is(err, errors.ErrUnsupported) {
			return nil, notYet(op, c.String(), "domains of a file in this build")
		}
		if err != nil {
			return nil, opError(op, c.String(), 0, "%w: file descriptor %d: %w", verbs.ErrInvalid, fd, err)
		}
	}
	var err error
	if e := c.exclusive(op, func() { err = c.dev.openDomain(x, inode, oflags) }); e != nil {
		err = e
	}
	if inode != nil && (err != nil || x.dom.inode != inode) {
		_ = inode.Close() // not kept by the domain
	}
	if err != nil {
		return nil, err
	}
	return x, nil
}

// openDomain finds or makes the domain of a handle. The caller holds the token.
func (d *device) openDomain(x *xrcd, inode *sys.Inode, oflags int) error {
	const op = "ibv_open_xrcd"
	if inode != nil {
		for _, dom := range d.domains {
			if dom.inode.ID() == inode.ID() {
				x.dom = dom
			}
		}
		switch {
		case x.dom == nil && oflags&os.O_CREATE == 0:
			return opError(op, x.ctx.String(), syscall.EAGAIN, "%w: the file has no domain, and O_CREATE is not set", verbs.ErrInvalid)
		case x.dom != nil && oflags&os.O_EXCL != 0:
			return opError(op, x.ctx.String(), syscall.EINVAL, "%w: the file has a domain already", verbs.ErrInvalid)
		}
	}
	if x.dom == nil {
		x.dom = &xrcDomain{inode: inode}
		if inode != nil {
			d.domains = append(d.domains, x.dom)
		}
	}
	x.dom.opens++
	x.number = d.nextNumber()
	x.ctx.counts.XRCD++
	return nil
}

// Close closes the handle, and with the last handle the domain. It returns [verbs.ErrBusy] while
// queue pairs or shared receive queues made or opened through it are alive.
//
// Implements: ibv_close_xrcd.
func (x *xrcd) Close() (err error) {
	const op = "ibv_close_xrcd"
	var inode *sys.Inode
	if e := x.ctx.closing(op, func() {
		if x.closed {
			return
		}
		if x.qps+x.srqs > 0 {
			err = opError(op, x.String(), syscall.EBUSY, "%w: %d queue pairs and %d shared receive queues alive", verbs.ErrBusy, x.qps, x.srqs)
			return
		}
		x.closed = true
		x.ctx.counts.XRCD--
		if x.dom.opens--; x.dom.opens > 0 {
			return
		}
		if inode = x.dom.inode; inode != nil {
			d := x.ctx.dev
			d.domains = slices.DeleteFunc(d.domains, func(dom *xrcDomain) bool { return dom == x.dom })
		}
	}); e != nil && !x.ctx.closed.Load() {
		return e
	}
	if inode != nil {
		return inode.Close()
	}
	return err
}

// Context returns the context it was opened on.
func (x *xrcd) Context() verbs.Context { return x.ctx }

// String returns the handle's name.
func (x *xrcd) String() string { return fmt.Sprintf("XRCD %d of %s", x.number, x.ctx.dev.cfg.Name) }

// ownXRCD returns v if it is a handle of this context. Only the holder of the port's token knows
// whether it is open.
func (c *deviceContext) ownXRCD(v verbs.XRCD) (*xrcd, bool) {
	x, ok := v.(*xrcd)
	return x, ok && x != nil && x.ctx == c
}
