package serve

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// addresses say where a process listens, or what it is connected to.
type addresses struct {
	NATS  string `json:"nats"`
	Redis string `json:"redis"`
	HTTP  string `json:"http"`
	Data  string `json:"data,omitempty"` // only with an embedded NATS server
}

// writeReadyFile writes where a process listens, as JSON, for scripts that start
// one on free ports: the file is there, whole, once the process is ready, and gone
// when it has ended cleanly.
func writeReadyFile(path string, a addresses) (err error) {
	content, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("--ready-file: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("--ready-file: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
			err = fmt.Errorf("--ready-file: %w", err)
		}
	}()
	_, err = f.Write(append(content, '\n'))
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
