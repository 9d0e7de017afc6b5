package output_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
)

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{errors.New("disk full"), 1},
		{&client.ReadError{Code: 400}, 1},
		{&client.ReadError{Code: 413}, 1},
		{&client.ReadError{Code: 500}, 1},
		{&client.ReadError{Code: 404}, 3},
		{&client.ReadError{Code: 503}, 5},
		{&output.StatusError{Status: 409}, 4},
		{output.Printed(&output.StatusError{Status: 412}), 4},
		{output.Usagef("--count %d", 0), 2},
		{client.ErrServerURL, 2},
		{client.ErrUnavailable, 5},
	} {
		if got := output.ExitCode(fmt.Errorf("orders: %w", c.err)); got != c.want {
			t.Errorf("%#v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}

func TestErrorsAreOneLine(t *testing.T) {
	if got := output.OneLine(errors.Join(errors.New("one"), errors.New("two\r\nthree"))); got != "one; two; three" {
		t.Errorf("%q", got)
	}
}
