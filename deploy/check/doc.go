// Package check holds what the files in deploy promise, each with the tool that the files are
// for: buildah builds the image, compose-go loads the compose file, kustomize renders the
// manifests, Helm lints and renders the chart, systemd-analyze reads the unit.
//
// It is a module of its own, so that the libraries that only these tests need are no
// dependencies of lapse. A tool that is missing fails its test; .ci/need installs them.
//
// These tests start no Docker engine, no Kubernetes cluster and no systemd.
package check
