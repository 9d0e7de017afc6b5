package console_test

import (
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
