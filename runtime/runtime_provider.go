package runtime

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/open"
)

// DeviceEnv is the environment variable that names the device. It applies if Config names neither a
// provider nor a device (see Config.Device).
const DeviceEnv = open.Env

// openDevice opens the device that the configuration chooses.
func (c Config) openDevice() (verbs.Provider, verbs.Context, error) {
	chosen, err := open.Choose(c.Provider, c.Device)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	dev, err := chosen.Open()
	return chosen.Provider, dev, err
}
