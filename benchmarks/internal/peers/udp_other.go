//go:build !linux || portable

package peers

import (
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// errNoUDP is the reason why the bare UDP ping-pong is not run.
var errNoUDP = fmt.Errorf("the bare UDP ping-pong: %w", errors.ErrUnsupported)

func newUDPPolling(string, shape) (suite.Load, error) { return nil, errNoUDP }

func serveUDPEcho(shape) (*service, error) { return nil, errNoUDP }
