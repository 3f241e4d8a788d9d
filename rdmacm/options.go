package rdmacm

// SetReuseAddr has BindAddr share a port with other identifiers that reuse addresses too. Call it before BindAddr. One
// of them can listen when it has the port alone. It does not block.
//
// Implements: rdma_set_option with RDMA_OPTION_ID_REUSEADDR.
func (id *ID) SetReuseAddr(reuse bool) error {
	if id == nil {
		return errNil("rdma_set_option")
	}
	return named("rdma_set_option", id, id.cm.SetReuseAddr(reuse))
}

// SetAFOnly restricts a listener at an unspecified address to requests of that address's family, so that one of IPv4
// and one of IPv6 can have the same port. The default is true for IPv4. Call it before BindAddr. It does not block.
//
// Implements: rdma_set_option with RDMA_OPTION_ID_AFONLY.
func (id *ID) SetAFOnly(only bool) error {
	if id == nil {
		return errNil("rdma_set_option")
	}
	return named("rdma_set_option", id, id.cm.SetAFOnly(only))
}
