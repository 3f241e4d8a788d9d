//go:build !linux

package pmem

import (
	"errors"
	"fmt"
	"os"
)

func datasync(*os.File) error { return fmt.Errorf("fdatasync: %w", errors.ErrUnsupported) }
