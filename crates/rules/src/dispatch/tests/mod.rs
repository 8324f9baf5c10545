//! Tables beside the rules, and a small world in which plans are carried out at random.

mod components;
mod copies;
mod decisions;
mod ends;
mod fixture;
mod flow;
mod forwards;
mod kubeconfigs;
mod losses;
mod mirrors;
mod nominations;
mod pods;
mod world;
