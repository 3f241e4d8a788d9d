//go:build !linux || !cgo || portable

package ibv

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// errAbsent is the error of all calls in this build.
var errAbsent = fmt.Errorf("%w: this program was built without cgo, not for Linux, or with the tag portable; libibverbs needs the opposite", verbs.ErrNotSupported)

// Provider is the provider over libibverbs, which this build does not have.
type Provider struct{}

var _ verbs.Provider = (*Provider)(nil)

// New returns ErrNotSupported.
func New(Config) (*Provider, error) { return nil, errAbsent }

// Default returns a provider whose calls return ErrNotSupported.
func Default() *Provider { return &Provider{} }

// Name is "ibv".
func (p *Provider) Name() string { return "ibv" }

// Devices returns ErrNotSupported.
func (p *Provider) Devices() ([]verbs.DeviceInfo, error) { return nil, errAbsent }

// Open returns ErrNotSupported.
func (p *Provider) Open(string) (verbs.Context, error) { return nil, errAbsent }

// CreateCMChannel returns ErrNotSupported.
func (p *Provider) CreateCMChannel() (verbs.CMChannel, error) { return nil, errAbsent }

// ForkStatus returns ErrNotSupported.
func (p *Provider) ForkStatus() (ForkStatus, error) { return ForkUnknown, errAbsent }

// CMObjects returns the zero count.
func (p *Provider) CMObjects() verbs.ObjectCount { return verbs.ObjectCount{} }

// Live returns 0.
func Live() int { return 0 }
