//! Tables for every rule of the decision, and properties over random histories.

mod cluster;
mod fixture;
mod histories;
mod indexed;
mod rules;
mod scenarios;
mod truth;
