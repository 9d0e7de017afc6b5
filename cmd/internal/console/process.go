package console

import (
	"fmt"
	"os"
)

// processName is the name of this process, as lapse status shows it.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}
