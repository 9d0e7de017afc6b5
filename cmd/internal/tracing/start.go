package tracing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/seed18712806/lapse/sink/credentials"
)

// Start starts a Tracer as the variables of OpenTelemetry say; nil if they do not ask for one. If they
// ask for what lapse cannot do, it says so in the log, and there is no Tracer either: lapse serves
// without.
func Start(ctx context.Context, opts Options) (*Tracer, error) {
	endpoint := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	if endpoint == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") ||
		os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	if err := check(endpoint); err != nil {
		opts.Logger.Warn("tracing is off", slog.Any("error", err))
		return nil, nil
	}
	// What the SDK says about its variables goes into the log of lapse.
	otel.SetLogger(logr.FromSlogHandler(opts.Logger.Handler()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		opts.Logger.Warn("OpenTelemetry",
			slog.Any("error", err))
	}))

	described, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName("lapse"), semconv.ServiceVersion(opts.Version)), resource.WithFromEnv())
	if err != nil {
		opts.Logger.Warn("OpenTelemetry", slog.Any("error", err)) // the rest of the resource is valid
	}
	inner, err := otlptracehttp.New(ctx)
	if err != nil {
		opts.Logger.Warn("tracing is off", slog.Any("error", err))
		return nil, nil
	}
	e := newExporter(inner, queueSize(), opts.Logger)
	if err := opts.Metrics.Register(e.spans); err != nil {
		return nil, err
	}
	shared := []sdk.TracerProviderOption{sdk.WithResource(described),
		sdk.WithSpanProcessor(e.behind(sdk.NewBatchSpanProcessor(e)))}
	const scope = "github.com/seed18712806/lapse"
	provider := sdk.NewTracerProvider(shared...) // its sampler is that of the environment
	opts.Logger.Info("tracing", slog.String("endpoint", credentials.RedactURLs(endpoint)))
	return &Tracer{
		prefix: string(opts.Prefix) + ".", provider: provider, exporter: e, log: opts.Logger,
		tracer:  provider.Tracer(scope),
		sampled: sdk.NewTracerProvider(append(shared, sdk.WithSampler(sdk.AlwaysSample()))...).Tracer(scope),
	}, nil
}

// check refuses settings that the exporter would ignore or misunderstand.
func check(endpoint string) error {
	if u, err := url.Parse(endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("the OTLP endpoint %q is not valid: use a URL such as http://collector:4318",
			credentials.RedactURLs(endpoint))
	}
	protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"),
		"http/protobuf")
	if protocol != "http/protobuf" && protocol != "http/json" {
		return fmt.Errorf("the OTLP protocol %q is not supported: use http/protobuf, which a collector has on port 4318",
			protocol)
	}
	if exporter := cmp.Or(os.Getenv("OTEL_TRACES_EXPORTER"), "otlp"); exporter != "otlp" {
		return fmt.Errorf("OTEL_TRACES_EXPORTER %q is not supported: use otlp, or none", exporter)
	}
	return nil
}

// queueSize is that of the SDK's queue, which reads the same variable.
func queueSize() int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(os.Getenv("OTEL_BSP_MAX_QUEUE_SIZE")), 10, 32)
	if err != nil || n <= 0 {
		return sdk.DefaultMaxQueueSize
	}
	return n
}
