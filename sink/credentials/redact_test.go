package credentials_test

import (
	"testing"

	"github.com/seed18712806/lapse/sink/credentials"
)

func TestURLs(t *testing.T) {
	for in, want := range map[string]string{
		"":                               "",
		"redis://host:1":                 "redis://host:1",
		"redis://u:secret@host:1/2":      "redis://u:xxxxx@host:1/2",
		"nats://u:secret@a:1,nats://b:2": "nats://u:xxxxx@a:1,nats://b:2",
		"redis+sentinel://u:secret@h:1,i:2/m?sentinel_password=secret&db=1": "" +
			"redis+sentinel://u:xxxxx@h:1,i:2/m?sentinel_password=xxxxx&db=1",
		"redis://u:sec%zzret@host:1":      "xxxxx@host:1",
		"nats://token@host:1":             "nats://xxxxx@host:1",
		"u:secret@host:1":                 "xxxxx@host:1",
		"@host:1":                         "xxxxx@host:1",
		"nats://a:1,nats://u:secret@b:no": "nats://a:1,xxxxx@b:no",
	} {
		if got := credentials.RedactURLs(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
